// w as q4_k.

#import codes4
#import lines_k
