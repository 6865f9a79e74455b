// w as affine2.

#import codes2
#import affine
