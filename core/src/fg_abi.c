/* What bindings check at load: version, ABI number, sizes of the public structs. */
#include "fg_base.h"

enum { VERSION_MAJOR = 0, VERSION_MINOR = 1, VERSION_PATCH = 0, ABI = 1 }; /* core/VERSION says the same; a test compares */

uint32_t fg_version(void) {
  return (uint32_t)VERSION_MAJOR << 16 | (uint32_t)VERSION_MINOR << 8 | (uint32_t)VERSION_PATCH;
}

uint32_t fg_abi(void) {
  return ABI;
}

uint32_t fg_sizeof(const char *name) {
  static const struct { char name[20]; uint32_t size; } known[] = {
    {"fg_call", sizeof(fg_call)},
    {"fg_sse", sizeof(fg_sse)},
    {"fg_str", sizeof(fg_str)},
    {"fg_header", sizeof(fg_header)},
    {"fg_error", sizeof(fg_error)},
    {"fg_mem", sizeof(fg_mem)},
    {"fg_region_config", sizeof(fg_region_config)},
    {"fg_tool_call", sizeof(fg_tool_call)},
    {"fg_request", sizeof(fg_request)},
    {"fg_evidence", sizeof(fg_evidence)},
    {"fg_failure", sizeof(fg_failure)},
    {"fg_answer", sizeof(fg_answer)},
    {"fg_decision", sizeof(fg_decision)},
    {"fg_served", sizeof(fg_served)},
    {"fg_candidate", sizeof(fg_candidate)},
    {"fg_rung", sizeof(fg_rung)},
    {"fg_facts", sizeof(fg_facts)},
    {"fg_route_info", sizeof(fg_route_info)},
    {"fg_route_view", sizeof(fg_route_view)},
    {"fg_workflow_view", sizeof(fg_workflow_view)},
  };
  uint32_t i;
  if (name == NULL) {
    return 0;
  }
  for (i = 0; i < FG_ARRAY_LEN(known); i++) {
    if (fg_eq(name, fg_cstr_len(name), known[i].name, fg_cstr_len(known[i].name))) {
      return known[i].size;
    }
  }
  return 0;
}
