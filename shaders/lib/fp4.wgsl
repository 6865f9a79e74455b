// Twice the 16 values of fp4 (e2m1): 0 1 2 3 4 6 8 12, then the same negated.

#import table16

const FP4 = vec4(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
