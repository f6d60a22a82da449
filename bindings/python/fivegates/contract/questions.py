"""What no data knows of a route: the questions to whoever does."""

from __future__ import annotations

__all__ = ["QUESTIONS"]

# section.key of a route's `provides`: who is asked what. All of safety, data and
# operations, and what of the others depends on the account or the way there.
QUESTIONS = {
    "input.request_bytes": "how many bytes may a request have?",
    "input.languages": "which languages do you trust it with?",
    "output.max_tokens_whole": "how long may an answer be that is not streamed?",
    "output.citations": "does it cite its sources?",
    "output.finish_reasons": "which finish reasons do its answers end with?",
    "output.refusal_form": "how does it refuse: error, finish_reason, text, answer?",
    "output.truncation": "what does it do with a prompt that is too long?",
    "tools.round_trip": "does it take a tool's result and go on?",
    "tools.argument_schemas": "are a tool call's arguments made by the schema?",
    "tools.idempotent": "may a tool be called twice for the same thing?",
    "tools.history_portable": "does it take the history of another model's calls?",
    "safety.filter": "which content filter is set up for this account?",
    "safety.high_risk": "which rule holds for uses of high risk?",
    "safety.human_escalation": "can a person take over?",
    "safety.stop_rules": "which stop rules are set up?",
    "data.retention_days": "for how many days does it keep prompts and answers?",
    "data.training": "may it train on them?",
    "data.regions": "in which regions does it work? all of them",
    "data.tenant_isolation": "how are tenants kept apart?",
    "data.classes": "which classes of data may go there?",
    "operations.streaming": "does it stream?",
    "operations.request_id": "does it answer with a request id?",
    "operations.first_token_p95_ms": "when do 95 % of its answers begin?",
    "operations.latency_p95_ms": "when are 95 % of its answers complete?",
    "operations.status_page": "where is its status page?",
    "economics.retry_charged": "is a request that failed charged?",
    "economics.quota_owner": "whose quota does it draw on?",
    "economics.spend_per_day_usd": "how much may this account spend a day?",
}
