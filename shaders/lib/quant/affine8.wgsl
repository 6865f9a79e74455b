// w as affine8.

#import codes8
#import affine
