// w as affine8: codes of 8 bits.

const BITS = 8u;

#import affine
