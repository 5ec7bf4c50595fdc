"""What users write with: tasks, workflows, and the verbs that are durable."""
