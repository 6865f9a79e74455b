// One lane per element, by workgroups of 64 lanes.

#import elements

const WG = 64u;
const UNITS = 64u;
