// w as tq2_0.

#import digits_k
