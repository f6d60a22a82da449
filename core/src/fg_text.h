/* Text into a caller's buffer: counts what is needed, writes what fits, always ends with NUL. No format strings, no libc. */
#ifndef FG_TEXT_H
#define FG_TEXT_H

#include "fg_base.h"

typedef struct fg_text { char *buf; uint32_t cap, need; } fg_text;

void fg_text_init(fg_text *t, char *buf, uint32_t cap);
uint32_t fg_text_end(fg_text *t); /* writes the NUL; returns the bytes needed without it */
void fg_text_put(fg_text *t, const char *bytes, uint32_t len);
void fg_text_z(fg_text *t, const char *z);
void fg_text_u64(fg_text *t, uint64_t v);
void fg_text_i64(fg_text *t, int64_t v);
void fg_text_hex64(fg_text *t, uint64_t v);
void fg_text_usd(fg_text *t, int64_t nusd);               /* decimal dollars, exact, no exponent */
void fg_text_json(fg_text *t, const char *bytes, uint32_t len); /* a JSON string with its quotes; bad UTF-8 becomes U+FFFD */

/* Members of one JSON object: `"key":` with the comma before it where one is due. */
typedef struct fg_obj { fg_text *t; uint32_t any; } fg_obj;
void fg_obj_begin(fg_obj *o, fg_text *t);
void fg_obj_end(fg_obj *o);
void fg_obj_key(fg_obj *o, const char *key);
void fg_obj_u64(fg_obj *o, const char *key, uint64_t v);
void fg_obj_limit(fg_obj *o, const char *key, uint32_t v); /* UINT32_MAX: null */
void fg_obj_word(fg_obj *o, const char *key, const char *word); /* NULL: null */
void fg_obj_str(fg_obj *o, const char *key, fg_str s);     /* empty: null */
void fg_obj_bool(fg_obj *o, const char *key, uint32_t v);

#endif /* FG_TEXT_H */
