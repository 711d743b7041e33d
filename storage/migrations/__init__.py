"""The schema's history: one file per change in versions/, run at start; knows tables as they were at the time."""
