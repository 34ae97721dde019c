"""`epida reproduce` as a Ray job.

    ray job submit --working-dir . -- python jobs/reproduce.py ablation --data-dir /data --output /shared/tables

The options are those of the command. Submitted again, the job goes on where it was.
"""

import sys

from epida_ray.cli import main

if __name__ == "__main__":
    sys.argv[:1] = ["epida", "reproduce"]
    main()
