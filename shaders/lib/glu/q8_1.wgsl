// Gated activations in q8_1.

#import glu_fours
