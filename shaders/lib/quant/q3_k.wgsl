// w as q3_k.

#import codes3
#import scales_k
