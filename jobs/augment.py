"""Run `epida augment` as a Ray job.

    ray job submit --working-dir . -- python jobs/augment.py s3://bucket/corpus/ --output s3://bucket/run

The options are those of the command. Submit the same job again to resume it.
"""

import sys

from epida_ray.cli import main

if __name__ == "__main__":
    sys.argv[:1] = ["epida", "augment"]
    main()
