// Gated activations in f16.

#import glu_fours
