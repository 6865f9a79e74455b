// w as q6_k.

#import codes6
#import scales_k
