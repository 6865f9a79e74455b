// Attention of many tokens over a KV cache on cooperative matrices.

#import attend
#import cached_runs
