// One workgroup of 256 lanes per token.

#import tokens

const WG = 256u;
const UNITS = 1u;
