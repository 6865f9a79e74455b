// RMS norm in f16.

#import rms_fours
