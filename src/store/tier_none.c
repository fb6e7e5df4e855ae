/* Built in place of store/remote/ (-Dremote=disabled). */
#include "store/tier.h"

const mote__tier_ops *const mote__tier_remote = NULL;
