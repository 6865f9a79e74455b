// One lane per element, by workgroups of 256 lanes.

#import elements

const WG = 256u;
const UNITS = 256u;
