-- Jobs that ask for light: this plugin checks their comment when they are submitted, and reserves whole nodes for them.
--
--     sbatch --comment "testbed: nodes=4 demand=4:64MiB" job.sh
--
-- nodes=N is required, at least 2. demand=NODES:BYTES is an AllReduce demand, as for `testbed apply`; it may be repeated.
-- BYTES is a number (64000000, 64e6) or has a unit (KiB, MiB, GiB, TiB). Text after a semicolon is the job's status.
-- Jobs whose comment does not begin with "testbed:" are left alone. light.py has the same grammar.

local MARK = "testbed:"
local STATUS = "waits for hosts"
local EXAMPLE = 'write for example --comment "testbed: nodes=4 demand=4:64MiB"'

local function is_for_light(comment)
   return comment ~= nil and comment:sub(1, #MARK) == MARK
end

local function check_demand(text, nodes)
   local group, bytes = text:match("^(%d%d?%d?%d?):(%w+)$")
   if group == nil
      or not (bytes:match("^%d+$") or bytes:match("^%d+e%d%d?$") or bytes:match("^%d+[KMGT]iB$"))
      or bytes:match("^0") then
      return "demand=" .. text .. " is not NODES:BYTES"
   end
   group = tonumber(group)
   if group < 2 or nodes % group ~= 0 then
      return "demand=" .. text .. ": " .. nodes .. " nodes cannot be divided into groups of " .. group
   end
   return nil
end

-- Return the number of nodes and the request without its status; nil and the fault of a request that is not valid.
local function parse(comment)
   local request = comment:match("^([^;]*)")
   if request:find("%c") then
      return nil, "characters include a line end, a tab or another control character: separate words by blanks"
   end
   request = request:gsub("%s+$", "")
   local nodes, demands = nil, {}
   for word in request:sub(#MARK + 1):gmatch("%S+") do
      local key, value = word:match("^(%a+)=(.*)$")
      if key == "nodes" and nodes == nil then
         nodes = value:match("^[1-9]%d?%d?%d?$") and tonumber(value)
         if not nodes or nodes < 2 then
            return nil, "nodes=" .. value .. " is not a number of nodes, 2 to 9999"
         end
      elseif key == "nodes" then
         return nil, "nodes is given twice"
      elseif key == "demand" then
         table.insert(demands, value)
      else
         return nil, "'" .. word .. "' is unknown: its words are nodes=N and demand=NODES:BYTES"
      end
   end
   if nodes == nil then
      return nil, "nodes=N is missing"
   end
   for _, demand in ipairs(demands) do
      local fault = check_demand(demand, nodes)
      if fault then
         return nil, fault
      end
   end
   return nodes, request
end

local function refuse(fault)
   slurm.log_user("the comment's %s; %s", fault, EXAMPLE)
   return slurm.ERROR
end

local function is_other(count, nodes)
   return count ~= nil and count ~= slurm.NO_VAL and count ~= nodes
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   if not is_for_light(job_desc.comment) then
      return slurm.SUCCESS
   end
   local nodes, request = parse(job_desc.comment)
   if nodes == nil then
      return refuse(request)
   end
   if is_other(job_desc.min_nodes, nodes) or is_other(job_desc.max_nodes, nodes) then
      return refuse("nodes=" .. nodes .. " and --nodes differ: leave out --nodes")
   end
   job_desc.min_nodes = nodes
   job_desc.max_nodes = nodes
   job_desc.shared = 0 -- whole nodes: a host's circuits belong to one job
   job_desc.comment = request .. "; " .. STATUS
   return slurm.SUCCESS
end

-- A submitted job keeps its request: its nodes were chosen for it. Operators and light.py may write the status.
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   local is_change = job_desc.comment ~= nil and (is_for_light(job_desc.comment) or is_for_light(job_rec.comment))
   if is_change and modify_uid ~= 0 and modify_uid == job_rec.user_id then
      return slurm.ESLURM_ACCESS_DENIED
   end
   return slurm.SUCCESS
end

return slurm.SUCCESS
