// w as affine4.

#import codes4
#import affine
