#include "fg_card_read.h"
int fg_card_lint(fg_card *c) { (void)c; return 1; }
