// w as affine2: codes of 2 bits.

const BITS = 2u;

#import affine
