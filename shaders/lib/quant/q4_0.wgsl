// w as q4_0.

#import codes4
#import scale_f16
