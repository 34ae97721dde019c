"""`epida reproduce` as a Ray job; the options are the same, and submitting it again resumes it.

    ray job submit --working-dir . -- python jobs/reproduce.py ablation --data-dir /data --output /shared/tables
"""

import sys

from epida_ray.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "reproduce")
    main()
