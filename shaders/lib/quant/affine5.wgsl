// w as affine5: codes of 5 bits.

const BITS = 5u;

#import affine
