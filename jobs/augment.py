"""`epida augment` as a Ray job.

    ray job submit --working-dir . -- python jobs/augment.py s3://bucket/corpus/ --output s3://bucket/run

The options are those of the command. Submitted again, the job goes on where it was.
"""

import sys

from epida_ray.cli import main

if __name__ == "__main__":
    sys.argv[:1] = ["epida", "augment"]
    main()
