"""Graphs as people write them: functions whose source is compiled, builders, texts."""
