"""Run `epida train` as a Ray job.

    ray job submit --working-dir . -- python jobs/train.py s3://bucket/train.parquet --output s3://bucket/run

The options are those of the command. Submit the same job again to resume it.
"""

import sys

from epida_ray.cli import main

if __name__ == "__main__":
    sys.argv[:1] = ["epida", "train"]
    main()
