// w as tq1_0.

#import digits_k
