"""`epida train` as a Ray job; the options are the same, and submitting it again resumes it.

    ray job submit --working-dir . -- python jobs/train.py s3://bucket/train.parquet --output s3://bucket/run
"""

import sys

from epida_ray.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "train")
    main()
