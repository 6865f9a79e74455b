// w as q8_0.

#import codes8
#import scale_f16
