// Tiled attention of many tokens over a KV cache.

#import attend
#import cached_runs
