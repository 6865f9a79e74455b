// w as affine3: codes of 3 bits.

const BITS = 3u;

#import affine
