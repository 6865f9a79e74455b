// Blocks of the file that are decoded to floats before they are multiplied.

#import block_of
#import dot_octet
