"""Routes of what belongs to the whole store: programs, queues, hosts, schedules."""
