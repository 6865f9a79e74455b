// w as affine5.

#import codes5
#import affine
