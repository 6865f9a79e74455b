// One workgroup of 128 lanes per token.

#import tokens

const WG = 128u;
const UNITS = 1u;
