"""Approving a stand-in with proof: draft, measure, show, approve."""
