// w as affine3.

#import codes3
#import affine
