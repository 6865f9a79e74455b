// w as q4_1.

#import codes4
#import line_f16
