#pragma once
#include "sim_runtime.h"
