// w as affine6: codes of 6 bits.

const BITS = 6u;

#import affine
