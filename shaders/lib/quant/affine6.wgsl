// w as affine6.

#import codes6
#import affine
