// w as affine4: codes of 4 bits.

const BITS = 4u;

#import affine
