/* The decision as JSON: one form for vectors, bindings and the ledger. */
#ifndef FG_DECISION_JSON_H
#define FG_DECISION_JSON_H

#include "fg_policy.h"
#include "fg_text.h"

/* The decision's members into an open object. */
void fg_decision_members(const fg_policy *p, const fg_decision *d, fg_obj *o);
fg_str fg_route_name(const fg_policy *p, uint32_t route); /* empty for 0 */

#endif /* FG_DECISION_JSON_H */
