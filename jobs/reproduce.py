"""Run `epida reproduce` as a Ray job.

    ray job submit --working-dir . -- python jobs/reproduce.py ablation --data-dir /data --output /shared/tables

The options are those of the command. Submit the same job again to resume it.
"""

import sys

from epida_ray.cli import main

if __name__ == "__main__":
    sys.argv[:1] = ["epida", "reproduce"]
    main()
