// w as q5_k.

#import codes5
#import lines_k
