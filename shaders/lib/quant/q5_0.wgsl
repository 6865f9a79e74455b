// w as q5_0.

#import codes5
#import scale_f16
