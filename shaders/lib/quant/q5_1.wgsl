// w as q5_1.

#import codes5
#import line_f16
