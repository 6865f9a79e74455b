// RMS norm in q8_1.

#import rms_fours
